"""The web page on the HTTP port: rollouts of the agents, and results of learning."""
