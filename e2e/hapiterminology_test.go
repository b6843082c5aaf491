package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// HAPI's RemoteTerminologyServiceValidationSupport uses the gateway as its terminology server.
func TestHAPITerminologyClient(t *testing.T) {
	skipOnReplicas(t, "one gateway is sufficient")
	needHAPI(t)
	if err := buildHAPI(); err != nil {
		t.Fatal(err)
	}
	const stored = `{"resourceType":"ValueSet","status":"active","expansion":{"timestamp":"2026-01-01T00:00:00Z","contains":[{"system":"http://loinc.org","code":"4548-4","display":"HbA1c"}]}}`
	tests := []struct{ name, question, want string }{
		{"an id that names two value sets, the first", "expand|http://a.example/vs", "http://a.example/vs male"},
		{"an id that names two value sets, the second", "expand|http://b.example/vs", "http://b.example/vs female"},
		{"a code of the first", "code|http://a.example/vs|http://hl7.org/fhir/administrative-gender|male", "ok Male"},
		{"a code of the first in the second", "code|http://b.example/vs|http://hl7.org/fhir/administrative-gender|male", "not ok: "},
		{"a code of a stored expansion", "sent|" + stored + "|http://loinc.org|4548-4", "ok HbA1c"},
		{"a code outside of a stored expansion", "sent|" + stored + "|http://loinc.org|4549-2", "not ok: "},
		{"a unit", "code||http://unitsofmeasure.org|mg/dL", "ok mg/dL"},
		{"no unit: the reason is an issue", "code||http://unitsofmeasure.org|mg/dLL", "[INFORMATION Error processing unit 'mg/dLL': The unit 'dLL' is unknown at character 4]"},
	}
	var questions []string
	for _, tt := range tests {
		questions = append(questions, tt.question)
	}
	lines := strings.Split(strings.TrimSpace(validateByHAPI(t, terminologyGateway(t), questions)), "\n")
	if len(lines) != len(tests) {
		t.Fatalf("%d answers: %s", len(lines), lines)
	}
	for i, tt := range tests {
		if !strings.HasPrefix(lines[i], tt.want) && !strings.HasSuffix(lines[i], tt.want) {
			t.Errorf("%s: %s, want %s", tt.name, lines[i], tt.want)
		}
	}
}

// terminologyGateway starts a gateway that serves only terminology, with two value sets that have the same id.
func terminologyGateway(t *testing.T) (base string) {
	t.Helper()
	home, address := t.TempDir(), mustFreeAddress(t)
	for name, code := range map[string]string{"a": "male", "b": "female"} {
		writeText(t, filepath.Join(home, name+".json"), `{"resourceType":"ValueSet","id":"same","url":"http://`+name+`.example/vs","status":"active",
			"compose":{"include":[{"system":"http://hl7.org/fhir/administrative-gender","concept":[{"code":"`+code+`"}]}]}}`)
	}
	file := filepath.Join(home, "Caddyfile")
	writeText(t, file, "{\n\tadmin {$CADDY_ADMIN}\n}\nhttp://"+address+" {\n\tfhir_expand {\n\t\tfhir_base /fhir\n\t\toperations all\n\t\tvary_by none\n\t\tdefinitions "+
		filepath.Join(home, "a.json")+" "+filepath.Join(home, "b.json")+"\n\t}\n}\n")
	g := startGuide(t, "hapi-terminology", home, "http://"+address, nil, caddyBinary, "run", "--config", file)
	base = g.issuer + "/fhir"
	if err := g.process.ready(func() error {
		answer, err := http.Get(base + "/metadata")
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}); err != nil {
		t.Fatal(err)
	}
	return base
}

// validateByHAPI runs hapi.Terminology with the questions and returns its output.
func validateByHAPI(t *testing.T, base string, questions []string) string {
	t.Helper()
	dependencies, err := os.ReadFile(filepath.Join(hapiFolder, "target", "classpath"))
	if err != nil {
		t.Fatal(err)
	}
	java := exec.CommandContext(t.Context(), "java", append([]string{"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
		filepath.Join(hapiFolder, "target", "classes") + ":" + strings.TrimSpace(string(dependencies)), "hapi.Terminology", base}, questions...)...)
	output, err := java.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return string(output)
}
