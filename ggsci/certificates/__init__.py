"""The private authority and the certificates of homes, as files."""
