package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestDifference(t *testing.T) {
	got := difference("error a: 1\nwarning b: 2\n", "warning b: 2\nerror c: 3\n")
	if want := []string{"- error a: 1", "+ error c: 3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := difference("error a: 1\n", "error a: 1"); got != nil {
		t.Errorf("of the same: %q", got)
	}
}

func TestVerdicts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "answers.json")
	text := `{"resourceType":"Bundle","entry":[{"resource":{"resourceType":"OperationOutcome",
		"extension":[{"url":"http://hl7.org/fhir/StructureDefinition/operationoutcome-file","valueString":"/x/units.json"}],
		"issue":[{"severity":"error","details":{"text":"no 'x' at http://127.0.0.1:9/fhir"},"expression":["Observation.value"]}]}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := verdicts(file, "http://127.0.0.1:9")
	if want := "error Observation.value: no 'x' at http://gateway/fhir\n"; err != nil || got["units.json"] != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

// Each resource has a file with expected messages, and each such file has a resource.
func TestEachResourceHasVerdict(t *testing.T) {
	resources, verdicts := names(t, ".json"), names(t, ".txt")
	if len(resources) == 0 || !slices.Equal(resources, verdicts) {
		t.Errorf("resources %v, verdicts %v", resources, verdicts)
	}
}

func names(t *testing.T, extension string) (names []string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*" + extension)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, f[:len(f)-len(extension)])
	}
	return names
}
