"""Net effects: many changes of a key become one."""
