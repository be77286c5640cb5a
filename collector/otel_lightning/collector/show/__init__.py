"""Show a stored rollout: the conversation step by step, with tools, rewards and credit."""
