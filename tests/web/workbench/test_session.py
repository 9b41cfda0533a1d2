"""Files, resets and the state of the session; tokens, and connections that are refused or lost."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from coding_gym_server.protocol import MAX_FRAME_BYTES
from tests.support.running_server import RunningServer
from tests.web.workbench.conftest import TOKEN, Workbench


@pytest.fixture
def files(workbench):
    workbench.select("Files")
    workbench.page.get_by_text("No files here").wait_for()
    return workbench.page.locator(".files-drop")


def test_files_go_up_and_down(workbench, files, tmp_path):
    content = bytes(range(256)) * 40
    source = tmp_path / "ä b#1.bin"
    source.write_bytes(content)
    workbench.page.get_by_label("Files to upload").set_input_files(source)
    files.get_by_text("ä b#1.bin").wait_for()
    assert "10.2 kB" in files.inner_text()
    workbench.run("data = open('ä b#1.bin', 'rb').read(); open('copy.bin', 'wb').write(data[::-1]) and None")
    with workbench.page.expect_download() as download:
        files.get_by_text("copy.bin").click()
    assert download.value.suggested_filename == "copy.bin"
    assert download.value.path().read_bytes() == content[::-1]


def test_dropped_file_is_uploaded(workbench, files):
    data = workbench.page.evaluate_handle(
        "() => { const data = new DataTransfer(); data.items.add(new File(['dropped'], 'note.txt')); return data; }"
    )
    files.dispatch_event("drop", {"dataTransfer": data})
    files.get_by_text("note.txt").wait_for()
    run = workbench.run("open('note.txt').read()")
    assert "dropped" in run.text_content()


def test_deletion_is_asked_for_twice(workbench, files):
    workbench.run("import os; os.mkdir('folder'); open('folder/inner.txt', 'w').close(); open('a.txt', 'w').close()")
    delete = workbench.page.get_by_role("button", name="Delete a.txt")
    delete.click()
    workbench.page.get_by_role("button", name="Really delete a.txt?").click()
    files.get_by_text("a.txt").wait_for(state="detached")
    workbench.page.get_by_role("button", name="folder/").click()
    files.get_by_text("inner.txt").wait_for()
    workbench.page.get_by_role("button", name="work", exact=True).click()
    files.get_by_text("folder/").wait_for()


def test_thousands_of_files_are_listed(workbench, files):
    workbench.run("for n in range(5000): open(f'file-{n:04}.txt', 'w').close()")
    files.get_by_text("file-0000.txt").wait_for()
    assert workbench.page.locator(".files-row").count() < 100
    workbench.page.locator(".files-list").evaluate("list => list.scrollTo(0, list.scrollHeight)")
    files.get_by_text("file-4999.txt").wait_for()


def test_files_with_names_that_are_not_utf8_have_no_buttons(workbench, files):
    workbench.run("open(b'caf\\xe9.txt', 'w').close(); open('plain.txt', 'w').close()")
    row = files.locator(".files-row", has_text="name is not UTF-8")
    row.wait_for()
    assert row.get_by_role("button").count() == 0
    assert files.locator(".files-row", has_text="plain.txt").get_by_role("button").count() == 2


def test_reset_begins_anew_with_options(workbench, tmp_path):
    workbench.run("x = 1")
    note = tmp_path / "note.txt"
    note.write_text("from the dialog")
    workbench.page.get_by_role("button", name="Reset …").click()
    dialog = workbench.page.locator("#reset-dialog")
    dialog.get_by_label("Files in the working directory").set_input_files(note)
    dialog.get_by_label("Seed").fill("7")
    dialog.get_by_label("Episode ID").fill("my episode")
    dialog.get_by_label("Reward “safety”").check()
    dialog.get_by_role("button", name="Reset", exact=True).click()
    dialog.wait_for(state="hidden")
    run = workbench.run("'x' in globals(), open('note.txt').read()")
    assert "(False, 'from the dialog')" in run.text_content()
    assert "reward -1" in run.text_content()
    workbench.select("Session")
    state = workbench.page.locator(".state-table").inner_text()
    assert "my episode" in state
    assert "seed=7" in state


def test_other_languages_run(workbench):
    workbench.reset(backend="bash")
    workbench.page.get_by_title("Backend").filter(has_text="bash").wait_for()
    run = workbench.run("echo $((6 * 7)); exit 3", "error")
    assert "42" in run.text_content()
    assert "exit code 3" in run.text_content()


def test_refused_options_are_explained_in_the_dialog(workbench):
    workbench.page.get_by_role("button", name="Reset …").click()
    dialog = workbench.page.locator("#reset-dialog")
    dialog.locator("[name=seed]").evaluate("field => { field.type = 'text'; field.value = '-1'; }")
    dialog.get_by_role("button", name="Reset", exact=True).click()
    dialog.get_by_role("alert").filter(has_text="seed").wait_for()
    dialog.get_by_role("button", name="Cancel").click()
    assert "42" in workbench.run("6 * 7").text_content()


def test_reset_with_too_large_files_leaves_the_session(workbench, tmp_path):
    workbench.run("x = 42")
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        file.truncate(MAX_FRAME_BYTES)
    workbench.page.get_by_role("button", name="Reset …").click()
    dialog = workbench.page.locator("#reset-dialog")
    dialog.get_by_label("Files in the working directory").set_input_files(large)
    dialog.get_by_role("button", name="Reset", exact=True).click()
    dialog.get_by_role("alert").filter(has_text=f"the server reads {MAX_FRAME_BYTES:,} at most").wait_for()
    dialog.get_by_role("button", name="Cancel").click()
    assert "42" in workbench.run("x").text_content()


def test_reset_after_the_connection_was_lost_is_explained(tmp_path, open_tab):
    page = open_tab()
    with RunningServer(tmp_path) as server:
        page.goto(f"{server.url}/web")
        Workbench(page).wait_until_connected()
        page.get_by_role("button", name="Reset …").click()
    page.locator(".banner").wait_for()
    dialog = page.locator("#reset-dialog")
    dialog.get_by_role("button", name="Reset", exact=True).click()
    dialog.get_by_role("alert").filter(has_text="There is no connection to the server.").wait_for()


def test_state_counts_steps(workbench):
    workbench.run("import sys; sys.exit(5)", "error")
    workbench.select("Session")
    rows = workbench.page.locator(".state-table tr").all_inner_texts()
    assert "Steps\t1" in rows
    assert "Last exit code\t5" in rows


def test_token_of_the_address_is_used_and_removed(guarded, open_tab):
    page = open_tab()
    page.goto(f"{guarded.url}/web#token={quote(TOKEN, safe='')}")
    workbench = Workbench(page)
    workbench.wait_until_connected()
    assert page.url == f"{guarded.url}/web"
    assert "42" in workbench.run("6 * 7").text_content()
    page.reload()
    workbench.wait_until_connected()
    workbench.select("Files")
    page.get_by_text("No files here").wait_for()


def test_token_of_an_address_that_is_opened_later_is_used(guarded, open_tab):
    page = open_tab()
    address = f"{guarded.url}/web#token={quote(TOKEN, safe='')}"
    page.goto(f"{guarded.url}/web#token=wrong")
    page.get_by_text("This token is not the server's.").wait_for()
    page.goto(address)
    workbench = Workbench(page)
    workbench.wait_until_connected()
    workbench.run("x = 42")
    page.goto(address)
    page.wait_for_function("location.hash === ''")
    assert "42" in workbench.run("x").text_content()
    page.traffic.problems.clear()  # The browser reports the status 401.


def test_token_is_asked_for(guarded, open_tab):
    page = open_tab()
    page.goto(f"{guarded.url}/web")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Connect").click()
    page.get_by_text("This token is not the server's.").wait_for()
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Connect").click()
    Workbench(page).wait_until_connected()
    assert all("401" in problem for problem in page.traffic.problems)
    page.traffic.problems.clear()


def test_refusal_for_lack_of_sessions_is_explained(guarded, open_tab):
    first, second = open_tab(), open_tab()
    for page in (first, second):
        page.goto(f"{guarded.url}/web#token={quote(TOKEN, safe='')}")
        if page is first:
            Workbench(page).wait_until_connected()
    second.get_by_text("Server at capacity: 1/1").wait_for()
    first.close()
    second.get_by_role("button", name="Try again").click()
    Workbench(second).wait_until_connected()


def test_lost_connection_is_told_and_mended(tmp_path, open_tab):
    page = open_tab()
    workbench = Workbench(page)
    with RunningServer(tmp_path) as server:
        page.goto(f"{server.url}/web")
        workbench.wait_until_connected()
        workbench.run("x = 1")
        workbench.start("import time; time.sleep(60)")
    page.get_by_text("connection to the server was lost").first.wait_for()
    assert "connection" in workbench.newest.text_content()
    assert page.get_by_role("button", name="Run", exact=True).is_disabled()
    page.get_by_role("button", name="Reconnect").click()
    page.get_by_text("The server cannot be reached.").wait_for()
    (tmp_path / "again").mkdir()
    with RunningServer(tmp_path / "again", port=server.port):
        page.get_by_role("button", name="Try again").click()
        workbench.wait_until_connected()
        assert "NameError" in workbench.run("x", "error").text_content()
    page.traffic.problems.clear()
