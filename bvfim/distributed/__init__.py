"""Runs of several processes: what they sum, agree on and save together; networks whose weights are sharded."""
