"""The Hugging Face Hub's client, and only that."""
