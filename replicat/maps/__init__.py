"""MAP statements: from their text to the columns and rules of a target table."""
