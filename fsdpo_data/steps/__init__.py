"""Steps: where they are cut, what they are labelled, what their rewards come to."""
