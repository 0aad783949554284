"""PostgreSQL captured by triggers, for where logical decoding is not to be had."""
