// Package kubernetes decodes the manifests of examples/kubernetes as the API server would.
package kubernetes

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const folder = "../../examples/kubernetes"

// decode fails on a field that the API does not have, and on one that is written twice.
func decode(t *testing.T, text []byte) (any, core.PodSpec) {
	t.Helper()
	var kind struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal(text, &kind); err != nil {
		t.Fatal(err)
	}
	var into any
	var pod func() core.PodSpec
	switch kind.APIVersion + " " + kind.Kind {
	case "v1 Secret":
		into, pod = &core.Secret{}, func() core.PodSpec { return core.PodSpec{} }
	case "batch/v1 CronJob":
		job := &batch.CronJob{}
		into, pod = job, func() core.PodSpec { return job.Spec.JobTemplate.Spec.Template.Spec }
	case "apps/v1 Deployment":
		deployment := &apps.Deployment{}
		into, pod = deployment, func() core.PodSpec { return deployment.Spec.Template.Spec }
	default:
		t.Fatalf("no type is known for %+v", kind)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatal(err)
	}
	return into, pod()
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestEveryManifestHasTheFieldsOfTheAPI(t *testing.T) {
	files, err := filepath.Glob(folder + "/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) { decode(t, read(t, name)) })
	}
}

func TestControlAFieldThatTheAPIDoesNotHaveIsFound(t *testing.T) {
	text := bytes.Replace(read(t, "cronjob.yaml"), []byte("restartPolicy"), []byte("restartPolice"), 1)
	var job batch.CronJob
	if err := yaml.UnmarshalStrict(text, &job); err == nil {
		t.Fatal("restartPolice was taken for a field")
	}
}

// Selectors, labels and the Secret's key fit together: the API server finds out only some of it.
func TestReferencesLeadSomewhere(t *testing.T) {
	found, _ := decode(t, read(t, "secret.yaml"))
	secret := found.(*core.Secret)
	for _, name := range []string{"cronjob.yaml", "deployment.yaml", "sidecar.yaml"} {
		found, pod := decode(t, read(t, name))
		if deployment, ok := found.(*apps.Deployment); ok {
			for label, value := range deployment.Spec.Selector.MatchLabels {
				if deployment.Spec.Template.Labels[label] != value {
					t.Errorf("%s: no pod has the label %s=%s", name, label, value)
				}
			}
		}
		asked := 0
		for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
			for _, variable := range container.Env {
				if variable.Name != "LEASEHOLD_URL" {
					continue
				}
				asked++
				from := variable.ValueFrom.SecretKeyRef
				if _, ok := secret.StringData[from.Key]; !ok || from.Name != secret.Name {
					t.Errorf("%s: the Secret has no %v", name, from)
				}
			}
			for _, mount := range container.VolumeMounts {
				if !slices.ContainsFunc(pod.Volumes, func(one core.Volume) bool { return one.Name == mount.Name }) {
					t.Errorf("%s: no volume %s", name, mount.Name)
				}
			}
		}
		if asked != 1 {
			t.Errorf("%s: %d containers have a URL", name, asked)
		}
	}
}

// Runs the commands as they stand there, but for the program behind `--`. LEASEHOLD names the command.
func TestTheCommandsRun(t *testing.T) {
	leasehold := os.Getenv("LEASEHOLD")
	if leasehold == "" {
		t.Skip("LEASEHOLD names no command")
	}
	for _, name := range []string{"cronjob.yaml", "deployment.yaml"} {
		_, pod := decode(t, read(t, name))
		words := pod.Containers[0].Command
		end := slices.Index(words, "--")
		if words[0] != "leasehold" || end < 0 {
			t.Fatal(words)
		}
		store := "LEASEHOLD_URL=sqlite:" + filepath.Join(t.TempDir(), "locks.db")
		// Twice: a CronJob's second pod ends with success, and runs nothing.
		said := ""
		for range 2 {
			command := exec.Command(leasehold, append(slices.Clone(words[1:end+1]), "echo", "ran")...)
			command.Env = append(os.Environ(), store)
			out, err := command.CombinedOutput()
			if err != nil {
				t.Fatal(name, err, string(out))
			}
			said += string(out)
		}
		if want := map[string]int{"cronjob.yaml": 1, "deployment.yaml": 2}[name]; strings.Count(said, "ran\n") != want {
			t.Errorf("%s: %q", name, said)
		}
	}
}
