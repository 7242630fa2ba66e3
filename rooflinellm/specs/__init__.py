"""Declarative specifications: frozen pydantic models that validate and hold no arithmetic."""
