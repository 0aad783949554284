"""The open target transaction, and what becomes of a change that the target refuses."""
