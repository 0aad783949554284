"""Values of the binary log as canonical text (docs/values.md): one file for each idea, pure functions on bytes."""
