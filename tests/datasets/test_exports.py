from __future__ import annotations

import json
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

from coding_gym import inputs
from coding_gym.datasets import Episode, Step, collect, export_chat, export_minari, export_parquet, load
from coding_gym.datasets.card import summarize
from coding_gym.datasets.dataset import Dataset
from coding_gym.datasets.export.conversation import action_text, conversation, observation_text
from coding_gym.errors import ConfigurationError, DatasetError
from coding_gym.wrappers.actions import extract_code
from tests.datasets.programs import UGLY, WINDOW
from tests.support.requirements import import_extra


@pytest.fixture(scope="module")
def dataset(pool, xvfb, tmp_path_factory) -> Dataset:
    """Two episodes with unusual text, a window and an error."""
    path = tmp_path_factory.mktemp("datasets") / "ugly"
    options = {"screen": (80, 60), "step_timeout": 60}
    return collect("CodingEnv-v0", [*UGLY, WINDOW, "1/0"], 2, seed=1, path=path, pool=pool, env_options=options)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Loader of Hugging Face ``datasets`` with a temporary cache."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = import_extra("datasets")
    datasets.disable_progress_bars()
    return lambda path: datasets.load_dataset(str(path), split="train", cache_dir=str(tmp_path / "cache"))


def pixels(picture):
    return np.asarray(picture)


def test_recorded_screenshot_shows_window(dataset):
    shown = [step.observation["screenshot"] for step in dataset[0].steps]
    assert shown[len(UGLY) + 1][10, 20].tolist() == [192, 32, 32]
    assert not shown[0].any()


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_reads_exported_steps(dataset, hub, tmp_path):
    export_parquet(dataset, tmp_path / "steps")
    rows = hub(tmp_path / "steps")
    expected = [(episode, number, step) for episode in dataset for number, step in enumerate(episode.steps)]
    assert len(rows) == len(expected)
    for row, (episode, number, step) in zip(rows, expected, strict=True):
        assert (row["episode"], row["step"], row["seed"]) == (episode.index, number, episode.seed)
        assert row["action"] == step.action
        assert {name: row[name] for name in ("stdout", "stderr", "exit_code")} == {
            name: step.observation[name] for name in ("stdout", "stderr", "exit_code")
        }
        assert np.array_equal(pixels(row["screenshot"]), step.observation["screenshot"])
        assert (row["reward"], row["terminated"], row["truncated"]) == (step.reward, step.terminated, step.truncated)
        assert json.loads(row["info"]) == step.info
        assert row["outcome"] == step.info["outcome"]
        assert row["decision"] is None


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_reads_exported_episodes(dataset, hub, tmp_path):
    export_parquet(dataset, tmp_path / "episodes", level="episode", card=True)
    rows = hub(tmp_path / "episodes")
    assert [row["sha256"] for row in rows] == list(dataset.hashes.values())
    for row, episode in zip(rows, dataset, strict=True):
        assert [step["action"] for step in row["steps"]] == [step.action for step in episode.steps]
        for there, here in zip(row["steps"], episode.steps, strict=True):
            assert there["stdout"] == here.observation["stdout"]
            assert np.array_equal(pixels(there["screenshot"]), here.observation["screenshot"])


@pytest.mark.parametrize("level", ["step", "episode"])
def test_pandas_reads_exported_directory(dataset, tmp_path, level):
    pandas = import_extra("pandas")
    import_extra("pyarrow")
    # Twice, as after more episodes have been collected.
    for _ in range(2):
        export_parquet(dataset, tmp_path, level=level)
        table = pandas.read_parquet(tmp_path)
        assert len(table) == (len(dataset) if level == "episode" else sum(len(episode.steps) for episode in dataset))


def test_polars_reads_exported_steps(dataset, tmp_path):
    polars = import_extra("polars")
    table = polars.read_parquet(export_parquet(dataset, tmp_path))
    assert table["stdout"].to_list() == [step.observation["stdout"] for episode in dataset for step in episode.steps]
    errors = table.filter(polars.col("outcome") == "error")
    assert errors.height == 2
    assert set(errors["exit_code"]) == {1}


def test_dataset_card_is_valid_for_hub(dataset, tmp_path):
    import_extra("pyarrow")
    cards = import_extra("huggingface_hub")
    export_parquet(dataset, tmp_path, card=True)
    card = cards.DatasetCard.load(tmp_path / "README.md")
    assert card.data.size_categories == ["n<1K"]
    assert card.data.configs == [{"config_name": "default", "data_files": [{"split": "train", "path": "data/*.parquet"}]}]
    assert dataset.sha256 in card.text
    assert "| ok | 14 |" in card.text
    assert "| error | 2 |" in card.text
    assert "| truncated | 2 |" in card.text


def test_failed_export_keeps_previous_file(dataset, tmp_path, monkeypatch):
    import_extra("pyarrow")
    target = export_parquet(dataset, tmp_path)
    before = target.read_bytes()
    monkeypatch.setattr(
        Dataset, "__iter__", lambda self: iter([dataset[0], Episode(index=1, seed=1, steps=(Step(observation=1),))])
    )
    with pytest.raises(DatasetError, match="Expected the observations of episode 1 to have the fields"):
        export_parquet(dataset, tmp_path)
    assert target.read_bytes() == before
    assert [file.name for file in target.parent.iterdir()] == [target.name]


@pytest.mark.filterwarnings("ignore")
def test_minari_export_preserves_all_data(dataset, tmp_path, monkeypatch):
    minari = import_extra("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    export_minari(dataset, "coding/ugly/script-v0", author="somebody")
    found = minari.load_dataset("coding/ugly/script-v0")
    assert (found.total_episodes, found.total_steps) == (2, 2 * (len(UGLY) + 2))
    assert found.spec.env_spec.id == "CodingEnv-v0"
    for there, here in zip(found.iterate_episodes(), dataset, strict=True):
        assert there.actions == here.actions
        assert there.observations["stdout"] == [step.observation["stdout"] for step in here.steps]
        assert there.observations["stderr"] == [step.observation["stderr"] for step in here.steps]
        assert there.observations["exit_code"].tolist() == [step.observation["exit_code"] for step in here.steps]
        frames = np.stack([step.observation["screenshot"] for step in here.steps])
        assert np.array_equal(there.observations["screenshot"], frames)
        assert there.infos["outcome"].tolist() == [step.info["outcome"] for step in here.steps]
        assert there.infos["idle"].tolist() == [step.info.get("idle", "") for step in here.steps]
        assert there.truncations.tolist()[-1]
    recovered = found.recover_environment()
    assert recovered.unwrapped.config.provider == "auto"
    recovered.close()
    with pytest.raises(ConfigurationError, match="already exists"):
        export_minari(dataset, "coding/ugly/script-v0")


@pytest.mark.filterwarnings("ignore")
def test_minari_collects_episodes_itself(pool, tmp_path, monkeypatch):
    minari = import_extra("minari")
    pytest.importorskip("jax", reason="Minari's collector needs jax: pip install 'minari[create]'")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = minari.DataCollector(gym.make("CodingEnv-v0", pool=pool, screen=None), data_format="arrow", record_infos=True)
    for seed in range(2):
        env.reset(seed=seed)
        for code in ("print('é')", "1 / 0"):
            env.step(code)
    found = env.create_dataset("coding/collected/plain-v0", algorithm_name="none", description="two episodes")
    env.close()
    assert (found.total_episodes, found.total_steps) == (2, 4)
    for episode in found.iterate_episodes():
        assert episode.actions == ["print('é')", "1 / 0"]
        assert episode.observations["exit_code"].tolist() == [0, 0, 1]
        assert episode.observations["stdout"] == ["", "é\n", ""]


@pytest.mark.screen
@pytest.mark.filterwarnings("ignore")
def test_actions_with_events_are_exported_as_json(pool, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    action = {"code": "print(1)", "events": [inputs.click(3, 4)]}
    options = {"screen": (64, 48), "step_timeout": 60}
    dataset = collect("CodingEnvGUI-v0", [action], 1, seed=1, path=tmp_path / "gui", pool=pool, env_options=options)
    polars = import_extra("polars")

    (minari_action,) = next(export_minari(dataset, "coding/hands-v0").iterate_episodes()).actions
    table = polars.read_parquet(export_parquet(dataset, tmp_path / "parquet"))
    plain = {"code": "print(1)", "events": [{"type": "click", "x": 3, "y": 4}]}
    assert json.loads(minari_action) == json.loads(table["action"][1]) == plain
    assert "```json" in conversation(dataset[0])[-1]["content"]


@pytest.mark.filterwarnings("ignore")
def test_numeric_environment_is_exported(tmp_path, monkeypatch, hub):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset = collect("CartPole-v1", "random", 3, seed=1, path=tmp_path / "cart", max_steps=6)
    found = export_minari(dataset, "cart/random-v0")
    for there, here in zip(found.iterate_episodes(), dataset, strict=True):
        assert np.array_equal(there.observations, np.stack([step.observation for step in here.steps]))
        assert there.actions.tolist() == here.actions
        assert there.rewards.tolist() == [1.0] * 6
    export_parquet(dataset, tmp_path / "parquet")
    rows = hub(tmp_path / "parquet")
    assert json.loads(rows[0]["observation"]) == dataset[0].steps[0].observation.tolist()


def test_chat_conversations_end_with_assistant_message(dataset, tmp_path):
    target = tmp_path / "chat.jsonl"
    assert export_chat(dataset, target) == 2
    lines = [json.loads(line) for line in target.read_text("utf-8").split("\n")[:-1]]
    messages = lines[0]["messages"]
    assert lines[0].keys() == {"messages"}
    assert [message["role"] for message in messages] == ["system"] + ["user", "assistant"] * (len(UGLY) + 2)
    assert extract_code(messages[2]["content"]) == UGLY[0] + "\n"
    assert messages[3]["content"] == dataset[0].steps[1].observation["stdout"].rstrip("\n")
    export_chat(dataset, target, system="", metadata=True)
    line = json.loads(target.read_text("utf-8").split("\n")[0])
    assert line["messages"][0]["role"] == "user"
    assert (line["episode"], line["task_id"], line["reward"], line["solved"]) == (0, None, 0.0, None)


def test_only_solved_requires_solved_information(dataset, tmp_path):
    with pytest.raises(DatasetError, match=r"No episode of .* says whether it was solved"):
        export_chat(dataset, tmp_path / "chat.jsonl", only_solved=True)
    assert list(tmp_path.iterdir()) == []


def test_only_solved_episodes_are_exported(tmp_path):
    class Solvable(gym.Env):
        action_space = gym.spaces.Discrete(2)
        observation_space = gym.spaces.Text(9)

        def reset(self, *, seed=None, options=None):
            return "a", {}

        def step(self, action):
            return "b", float(action), True, False, {"solved": bool(action)}

    collect(Solvable, lambda observation, info, rng: int(rng.integers(2)), 20, seed=1, path=tmp_path)
    dataset = load(tmp_path)
    summary = summarize(dataset)
    assert 0 < summary.solved < 20
    assert summary.mean_reward == summary.solved / 20
    assert summary.endings == {"terminated": 20}
    assert export_chat(dataset, tmp_path / "chat.jsonl", only_solved=True) == summary.solved
    assert f"| solved | {summary.solved} ({summary.solved / 20:.1%}) |" in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("```python\nprint(1)\n```", "print(1)\n"),
        ("First\n```py\na\n```\nno, better:\n```\nb\n```\nDone.", "b\n"),
        ("```python\nunfinished", "unfinished\n"),
        ("```bash\nls\n```\nprint(1)", ""),
        ("print(1)", "print(1)"),
        ("", ""),
    ],
)
def test_code_is_extracted_from_answer(answer, code):
    assert extract_code(answer) == code


def test_observations_and_actions_become_chat_text():
    observation = {"stdout": "a\n", "stderr": "b\n", "exit_code": np.int64(3), "screenshot": np.zeros((2, 2, 3))}
    assert observation_text(observation, {}) == "a\nb\n[exit code 3]"
    info = {"graded": True, "tests_passed": 2, "tests_total": 3}
    assert observation_text({"stdout": "", "stderr": "", "exit_code": 0}, info) == "[2 of 3 tests passed]"
    assert observation_text({"stdout": "", "stderr": "", "exit_code": 0}, {}) == "[no output]"
    assert observation_text("text", {}) == "text"
    assert observation_text(np.arange(2), {}) == "[0, 1]"
    fenced = action_text("s = '''\n```\n'''")
    assert fenced.startswith("````python\n")
    first = Step(observation={"prompt": "Add.", "stdout": "", "stderr": "", "exit_code": 0})
    episode = Episode(index=0, seed=0, steps=(first, Step(observation={}, action="1")))
    assert conversation(episode)[1] == {"role": "user", "content": "Add."}


def test_missing_library_is_named_with_install_command(dataset, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigurationError, match=r"requires pyarrow: pip install 'coding-gym\[datasets\]'"):
        export_parquet(dataset, tmp_path)
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(ConfigurationError, match=r"requires minari: pip install 'coding-gym\[minari\]'"):
        export_minari(dataset, "a/b-v0")
    with pytest.raises(ConfigurationError, match="Expected level="):
        export_parquet(dataset, tmp_path, level="row")


def test_import_loads_no_export_library():
    code = "import sys, coding_gym.datasets; print({'pyarrow', 'minari', 'datasets', 'requests', 'rich'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
