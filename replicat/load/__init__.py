"""The initial load: tables that are copied chunk by chunk while their changes are applied."""
