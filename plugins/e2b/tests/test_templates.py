"""Templates with E2B's SDK."""

from __future__ import annotations

import pytest

from tests.support.requirements import import_extra

e2b = import_extra("e2b")

pytestmark = pytest.mark.filterwarnings("ignore")


def build(template, name, options):
    control = {name: value for name, value in options.items() if name != "sandbox_url"}
    return e2b.Template.build(template, name, **control)


def test_built_template_has_files_variables_and_results(tmp_path, options):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "in.txt").write_text("1 2 3")
    template = (
        e2b.Template(file_context_path=tmp_path)
        .from_base_image()
        .set_envs({"TOPIC": "graphs"})
        .set_workdir("/home/user/work")
        .copy("data", "copied")
        .copy("data/in.txt", "/tmp/one.txt")
        .run_cmd('echo "$TOPIC: $(cat copied/in.txt)" > result')
    )
    assert not e2b.Template.exists("sums", api_url=options["api_url"], api_key=options["api_key"])
    build(template, "sums", options)
    assert e2b.Template.exists("sums", api_url=options["api_url"], api_key=options["api_key"])
    for _ in range(2):
        sandbox = e2b.Sandbox.create("sums", **options)
        assert sandbox.files.read("work/result") == "graphs: 1 2 3\n"
        assert sandbox.files.read("/tmp/one.txt") == "1 2 3"
        assert sandbox.commands.run("echo $TOPIC").stdout == "graphs\n"
        sandbox.kill()


def test_start_command_runs_in_each_sandbox(options):
    template = e2b.Template().from_template("base").set_start_cmd("echo up > started; sleep 600", e2b.wait_for_file("started"))
    build(template, "started", options)
    sandbox = e2b.Sandbox.create("started", **options)
    assert sandbox.files.read("started") == "up\n"
    assert len(sandbox.commands.list()) == 1
    sandbox.kill()


def test_failed_step_fails_the_build(options):
    template = e2b.Template().from_base_image().run_cmd("echo reason >&2; exit 7")
    with pytest.raises(Exception, match=r"exit status 7: reason"):
        build(template, "broken", options)
    with pytest.raises(e2b.SandboxException, match="not ready"):
        e2b.Sandbox.create("broken", **options)


@pytest.mark.parametrize("directory", ["/", "/usr", "/home/user", "/home/user/a/b"])
def test_working_directory_may_exist_and_need_not_be_writable(options, directory):
    # E2B's command line always begins with WORKDIR /.
    template = e2b.Template().from_base_image().set_workdir(directory).run_cmd("pwd > /home/user/where")
    build(template, "somewhere", options)
    sandbox = e2b.Sandbox.create("somewhere", **options)
    assert sandbox.files.read("/home/user/where") == f"{directory}\n"
    sandbox.kill()


def test_list_describes_templates(options, control):
    build(e2b.Template().from_base_image(), "listed", options)
    (listed,) = (template for template in control.get("/templates").json() if "listed" in template["names"])
    assert listed["aliases"] == ["listed"]
    assert listed["buildStatus"] == "ready"
    assert min(listed["cpuCount"], listed["memoryMB"], listed["diskSizeMB"], listed["buildCount"]) > 0
    assert listed["createdAt"].endswith("Z")


def test_unknown_image_is_refused(options):
    with pytest.raises(Exception, match=r"--template ubuntu:22\.04=IMAGE"):
        build(e2b.Template().from_image("ubuntu:22.04"), "foreign", options)


def test_rebuilt_template_is_the_newest_one_that_works(options):
    for number in (1, 2):
        build(e2b.Template().from_template("base").run_cmd(f"echo {number} > number"), "rebuilt", options)
    with pytest.raises(Exception, match="exit status 3"):
        build(e2b.Template().from_template("base").run_cmd("exit 3"), "rebuilt", options)
    sandbox = e2b.Sandbox.create("rebuilt", **options)
    assert sandbox.files.read("number") == "2\n"
    sandbox.kill()


def test_deleted_template_is_gone_with_all_its_builds(options, control):
    for _ in range(2):
        build(e2b.Template().from_template("base"), "discarded", options)
    assert control.delete("/templates/discarded").status_code == 204
    assert control.delete("/templates/discarded").status_code == 404
    with pytest.raises(e2b.SandboxException, match="not found"):
        e2b.Sandbox.create("discarded", **options)
