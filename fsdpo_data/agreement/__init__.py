"""Agreement of two labellers of steps: people, judges, rollouts and reward models."""
