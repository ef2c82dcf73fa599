"""Data that ships with ropewalk: an embedding slice and stored records; see NOTICE."""
