"""The rollout of each span: by the ids that spans state, or by which call continues which."""
