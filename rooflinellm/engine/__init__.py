"""The engine: compile declarative entries into coefficients once, then evaluate plain arithmetic."""
