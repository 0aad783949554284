"""From MAP statements to mapped rows: options, rules, columns, and what a row becomes."""
