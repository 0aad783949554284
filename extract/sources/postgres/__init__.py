"""PostgreSQL as a source: everything that is known of it stands here."""
