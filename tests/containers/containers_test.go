// Package containers looks at the Dockerfiles and at the compose file as Docker would, without a daemon.
package containers

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"go.yaml.in/yaml/v3"
)

const root = "../.."

var dockerfiles = []string{"Dockerfile", "examples/compose/Dockerfile"}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// stages fails on an instruction that BuildKit does not know; its lints are returned.
func stages(t *testing.T, text []byte) ([]instructions.Stage, []string) {
	t.Helper()
	read, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	stages, _, err := instructions.Parse(read.AST, linter.New(&linter.Config{
		Warn: func(rule, description, url, format string, _ []parser.Range) {
			said = append(said, rule+": "+format)
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	return stages, said
}

func project(t *testing.T, text []byte) (*types.Project, error) {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"compose.yaml"},
		cli.WithWorkingDirectory(filepath.Join(root, "examples/compose")))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "compose.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	options.ConfigPaths = []string{file}
	return options.LoadProject(context.Background())
}

func example(t *testing.T) *types.Project {
	t.Helper()
	found, err := project(t, read(t, "examples/compose/compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestBuildKitHasNothingToSayOfTheDockerfiles(t *testing.T) {
	for _, name := range dockerfiles {
		if _, said := stages(t, read(t, name)); len(said) > 0 {
			t.Errorf("%s: %s", name, strings.Join(said, "; "))
		}
	}
}

func TestControlALintIsFound(t *testing.T) {
	if _, said := stages(t, []byte("FROM scratch as Program\nMAINTAINER me\n")); len(said) < 2 {
		t.Fatal(said)
	}
}

// The images run as a user who is not root, in no stage from a version that moves.
func TestImagesAreNotRootsAndPinned(t *testing.T) {
	for _, name := range dockerfiles {
		found, _ := stages(t, read(t, name))
		user, program := "", false
		for _, command := range found[len(found)-1].Commands {
			switch command := command.(type) {
			case *instructions.UserCommand:
				user = command.User
			case *instructions.EntrypointCommand, *instructions.CmdCommand:
				program = true
			}
		}
		if user != "65532:65532" || !program {
			t.Errorf("%s: the user is %q; a program: %v", name, user, program)
		}
		for _, stage := range found {
			_, version, _ := strings.Cut(stage.BaseName, ":")
			if stage.BaseName != "scratch" && (version == "" || version == "latest") {
				t.Errorf("%s: %s is not pinned", name, stage.BaseName)
			}
		}
	}
}

// What is copied in is in the checkout, or is made by `make dist`; and .dockerignore lets it through.
func TestWhatIsCopiedIsSent(t *testing.T) {
	sent := strings.Split(string(read(t, ".dockerignore")), "\n")
	for _, name := range dockerfiles {
		found, _ := stages(t, read(t, name))
		for _, stage := range found {
			for _, command := range stage.Commands {
				copied, ok := command.(*instructions.CopyCommand)
				if !ok || copied.From != "" {
					continue
				}
				for _, source := range copied.SourcePaths {
					if strings.HasPrefix(source, "dist/") {
						source = "dist/*" + filepath.Ext(source)
					} else if _, err := os.Stat(filepath.Join(root, source)); err != nil {
						t.Errorf("%s: %v", name, err)
					}
					if !slices.Contains(sent, "!"+source) {
						t.Errorf("%s: .dockerignore keeps %s out", name, source)
					}
				}
			}
		}
	}
}

func TestTheComposeFileIsOneThatComposeKnows(t *testing.T) {
	found := example(t)
	names := found.ServiceNames()
	slices.Sort(names)
	if !slices.Equal(names, []string{"grafana", "prometheus", "redis", "worker"}) {
		t.Fatal(names)
	}
	if replicas := found.Services["worker"].Deploy.Replicas; replicas == nil || *replicas != 2 {
		t.Error("there are not two workers")
	}
	if url := found.Services["worker"].Environment["LEASEHOLD_URL"]; url == nil || *url != "redis://redis" {
		t.Error("the workers do not share the Redis")
	}
	for name, service := range found.Services {
		if build := service.Build; build != nil {
			if !slices.Contains(dockerfiles, build.Dockerfile) {
				t.Errorf("%s is built of %s", name, build.Dockerfile)
			}
		} else if _, version, _ := strings.Cut(service.Image, ":"); version == "" || version == "latest" {
			t.Errorf("%s: %s is not pinned", name, service.Image)
		}
		for _, mount := range service.Volumes {
			if mount.Type != "bind" {
				continue
			}
			if _, err := os.Stat(mount.Source); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, port := range service.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s is open to others at port %s", name, port.Published)
			}
		}
	}
}

func TestControlAFieldThatComposeDoesNotKnowIsFound(t *testing.T) {
	text := bytes.Replace(read(t, "examples/compose/compose.yaml"), []byte("replicas:"), []byte("replica:"), 1)
	if _, err := project(t, text); err == nil || !strings.Contains(err.Error(), "replica") {
		t.Fatal(err)
	}
}

// Prometheus asks the workers where they answer, and Grafana asks Prometheus.
func TestTheServicesFindEachOther(t *testing.T) {
	var prometheus struct {
		ScrapeConfigs []struct {
			DNS []struct {
				Names []string `yaml:"names"`
				Port  int      `yaml:"port"`
			} `yaml:"dns_sd_configs"`
		} `yaml:"scrape_configs"`
	}
	var grafana struct {
		Datasources []struct {
			URL string `yaml:"url"`
		} `yaml:"datasources"`
	}
	for name, into := range map[string]any{"prometheus.yml": &prometheus, "grafana.yml": &grafana} {
		if err := yaml.Unmarshal(read(t, "examples/compose/"+name), into); err != nil {
			t.Fatal(name, err)
		}
	}
	if _, err := exec.LookPath("promtool"); err == nil {
		here := t.TempDir()
		for _, name := range []string{"examples/compose/prometheus.yml", "examples/metrics/alerts.yml"} {
			if err := os.WriteFile(filepath.Join(here, filepath.Base(name)), read(t, name), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		said, err := exec.Command("promtool", "check", "config", filepath.Join(here, "prometheus.yml")).CombinedOutput()
		if err != nil {
			t.Error(string(said))
		}
	}
	asked := prometheus.ScrapeConfigs[0].DNS[0]
	worker := string(read(t, "examples/compose/worker.py"))
	if _, ok := example(t).Services[asked.Names[0]]; !ok || !strings.Contains(worker, fmt.Sprintf(`"PORT", "%d"`, asked.Port)) {
		t.Errorf("Prometheus asks %+v", asked)
	}
	if url := grafana.Datasources[0].URL; url != "http://prometheus:9090" {
		t.Error(url)
	}
}
