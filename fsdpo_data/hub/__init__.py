"""The client of the Hugging Face Hub."""
