"""Saved trees of given shapes, and a server that shows them."""

from __future__ import annotations

import contextlib
import threading

import gymnasium as gym
import uvicorn
from gymnasium.envs.registration import EnvSpec

from coding_gym.plugins import listen
from coding_gym_search import BranchTree
from coding_gym_studio.guard import Guard
from coding_gym_studio.viewer.trees import tree_app

TOKEN = "token-of-tests"


class Nothing:
    """The state of an environment without one."""

    def release(self):
        pass


class ScriptedReplies(gym.Env):
    """Environment without a state, whose steps observe what ``reply`` has."""

    reply: dict = {}  # noqa: RUF012 - replaced before each step

    def step(self, action):
        reply = {"stdout": "", "stderr": "", "exit_code": 0} | self.reply
        info = {"outcome": reply.pop("outcome", "ok")}
        if "solved" in reply:
            info["solved"] = reply.pop("solved")
        return reply, reply.pop("reward", 0.0), reply.pop("terminated", False), False, info

    def clone_state(self):
        return Nothing()

    def restore_state(self, snapshot, *, seed=None):
        return {}, {}


def save_tree(path, steps, *, environment="CodingEnv-v0", backend=None):
    """Save a tree whose steps are given as the id of the node before, the action, the reply, and the value."""
    env = ScriptedReplies()
    env.spec = EnvSpec(environment, entry_point=ScriptedReplies, kwargs={} if backend is None else {"backend": backend})
    with BranchTree(env) as tree:
        nodes = [tree.root]
        for parent, action, reply, value in steps:
            env.reply = reply
            nodes.append(tree.expand(nodes[parent], action))
            tree.backpropagate(nodes[-1], value)
        tree.save(path)


@contextlib.contextmanager
def serving(path):
    """Serve the page of a tree, and yield its address."""
    with listen("127.0.0.1", 0) as listener:
        server = uvicorn.Server(uvicorn.Config(Guard(tree_app(path), token=TOKEN), log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/#token={TOKEN}"
        finally:
            server.should_exit = True
            thread.join()
