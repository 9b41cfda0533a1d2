from __future__ import annotations

import json
import re

import numpy as np
import pytest

from coding_gym.datasets import load
from tests.support.chat_endpoint import ChatEndpoint, completion, picture_of
from tests.support.requirements import require_display

pytestmark = pytest.mark.screen

GREEN, WHITE = (46, 125, 50), (255, 255, 255)
PROSE = "I see a form, and would like to fill it in."
DECODING_ERRORS = '```json\n[{"type": "clack", "x": 1, "y": 1}]\n```'


def spans(line):
    """Return the ranges in which a line is true."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], line.astype(int), [0]))))
    return list(zip(edges[::2], edges[1::2], strict=True))


def middle(span):
    return int(sum(span) // 2)


def click(x, y):
    return {"type": "click", "x": x, "y": y}


class Reader:
    """Finds the form's fields in the pixels of a picture: white fields, the text, sizes and delivery, above a green button."""

    def __init__(self, picture):
        green = (picture == GREEN).all(axis=2)
        self.button = middle(spans(green.any(axis=0))[0]), middle(spans(green.any(axis=1))[0])
        white = (picture == WHITE).all(axis=2)
        white[spans(green.any(axis=1))[0][0] :] = False
        rows = [span for span in spans(white.any(axis=1)) if span[1] - span[0] > 4]
        self.text, sizes, self.express = ((white[slice(*span)], span) for span in rows)
        self.sizes = dict(zip(("small", "medium", "large"), self.fields(sizes), strict=True))

    @staticmethod
    def fields(row):
        pixels, span = row
        return [(middle(columns), middle(span)) for columns in spans(pixels.any(axis=0)) if columns[1] - columns[0] > 4]

    @property
    def is_filled(self):
        """Whether there is text in the text field, whose middle row is white otherwise."""
        pixels, _ = self.text
        inner = pixels[:, pixels.any(axis=0)]
        return not inner[3:-3, 3:-3].all()


def vision_model(body, count):
    """Answer from the goal and the last picture alone."""
    texts = [part["text"] for message in body["messages"][1::2] for part in message["content"] if part["type"] == "text"]
    if len(texts) <= 2:
        return completion([PROSE, DECODING_ERRORS][len(texts) - 1])
    size, name, delivery = re.search(r"size (\w+) for (\w+), (\w+) express", texts[0]).groups()
    form = Reader(picture_of(body["messages"][-1]))
    if not form.is_filled:
        events = [click(*form.fields(form.text)[0]), {"type": "text", "text": name}]
    else:
        express = [click(*form.fields(form.express)[0])] if delivery == "with" else []
        events = [click(*form.sizes[size]), *express, click(*form.button)]
    return completion(f"I act:\n```json\n{json.dumps(events)}\n```")


def test_gui_agent_fills_in_forms_from_pixels(run_example, tmp_path):
    require_display()
    options = ["--model", "tiny", "--limit", 3, "--out", tmp_path / "gui"]
    with ChatEndpoint(vision_model) as endpoint:
        code, printed = run_example("gui_agent.py", *options, "--base-url", endpoint.url)
    assert code is None, printed
    assert re.findall(r"(\d) │ +(\d) │ +(yes|no)", printed) == [("4", "2", "yes")] * 3
    assert "solved: 3 of 3" in printed
    dataset = load(tmp_path / "gui")
    # Each episode has another form, at another place.
    assert len({episode.steps[0].info["goal"] for episode in dataset}) == 3
    first = [picture_of(episode.steps[1].decision["messages"][1]) for episode in dataset]
    assert len({Reader(picture).button for picture in first}) == 3
    for episode, picture in zip(dataset, first, strict=True):
        np.testing.assert_array_equal(picture, episode.steps[0].observation["screenshot"])
        told = [step.decision["messages"][-1]["content"][0]["text"] for step in episode.steps[2:]]
        assert ["no list of events" in told[0], "nothing was performed" in told[1]] == [True, True]
        assert not any(step.info["solved"] for step in episode.steps[:-1])
