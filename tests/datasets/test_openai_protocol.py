"""The official client and its types, compared with ``ChatPolicy`` and with the endpoint that tests use."""

from __future__ import annotations

import base64
from io import BytesIO
from typing import get_type_hints

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

from coding_gym.datasets import ChatPolicy, EpisodeStart
from tests.support.chat_endpoint import ChatEndpoint, completion, picture_of
from tests.support.requirements import import_extra


@pytest.fixture(scope="module")
def openai():
    return import_extra("openai")


def described(observation, info):
    file = BytesIO()
    Image.fromarray(observation).save(file, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    return [{"type": "text", "text": "See:"}, {"type": "image_url", "image_url": {"url": url}}]


def test_requests_have_types_of_official_client(openai):
    from openai.types.chat import completion_create_params as params
    from pydantic import TypeAdapter

    picture = np.random.default_rng(1).integers(0, 256, (20, 30, 3), np.uint8)
    with ChatEndpoint(lambda body, _: completion("I see.")) as endpoint:
        policy = ChatPolicy(
            "tiny",
            base_url=endpoint.url,
            parameters={"temperature": 0.5, "max_completion_tokens": 9},
            describe_observation=described,
        )
        start = EpisodeStart(index=0, rng=np.random.default_rng(1), action_space=gym.spaces.Discrete(2))
        act = policy.begin(start)
        act({"prompt": "Look."}, {})
        act(picture, {})
    kind = params.CompletionCreateParamsNonStreaming
    adapter = TypeAdapter(kind)
    for body in endpoint.requests:
        # Validation ignores unknown names.
        assert body.keys() <= get_type_hints(kind).keys()
        checked = adapter.validate_python(body)
        # Pydantic validates iterables while they are read.
        for message in checked["messages"]:
            assert isinstance(message["content"], str) or all(part["type"] for part in message["content"])
    np.testing.assert_array_equal(picture_of(endpoint.requests[1]["messages"][3]), picture)


def test_official_client_understands_test_endpoint(openai):
    def answer(body, count):
        return (429, {"Retry-After": "0.01"}, b"{}") if count == 1 else completion("Hello.")

    with ChatEndpoint(answer, api_key="sk-1") as endpoint:
        messages = [{"role": "user", "content": "Hi."}]
        with openai.OpenAI(api_key="sk-1", base_url=endpoint.url) as client:
            response = client.chat.completions.create(model="tiny", messages=messages)
            assert (response.choices[0].message.content, response.usage.total_tokens) == ("Hello.", 8)
            with pytest.raises(openai.BadRequestError, match="only users"):
                client.chat.completions.create(
                    model="tiny", messages=[{"role": "system", "content": [{"type": "text", "text": ""}]}]
                )
        with (
            openai.OpenAI(api_key="sk-2", base_url=endpoint.url) as client,
            pytest.raises(openai.AuthenticationError, match="Incorrect API key"),
        ):
            client.chat.completions.create(model="tiny", messages=messages)
