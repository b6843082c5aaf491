package deployment

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// nginx and HAProxy accept the configurations in docs/operate/replicas.md.
func TestLoadBalancers(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operate/replicas.md")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if _, err := newCertificate(folder, "fhir.example.org"); err != nil {
		t.Fatal(err)
	}
	certificate, err1 := os.ReadFile(filepath.Join(folder, "certificate.pem"))
	key, err2 := os.ReadFile(filepath.Join(folder, "key.pem"))
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	for name, content := range map[string][]byte{"fhir.example.org.pem": append(certificate, key...), "fhir.example.org.key": key} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ program, before, after string }{
		{"nginx", "pid " + folder + "/pid;\nevents {\n}\nhttp {\naccess_log off;\n", "}\n"},
		{"haproxy", "", ""},
	} {
		t.Run(test.program, func(t *testing.T) {
			if _, err := exec.LookPath(test.program); err != nil {
				t.Skip("not installed:", test.program)
			}
			block := regexp.MustCompile("(?s)```" + test.program + "\n(.*?)```").FindSubmatch(text)
			if block == nil {
				t.Fatal("no configuration")
			}
			file := filepath.Join(folder, test.program+".conf")
			whole := test.before + strings.ReplaceAll(string(block[1]), "/etc/ssl", folder) + test.after
			if err := os.WriteFile(file, []byte(whole), 0o600); err != nil {
				t.Fatal(err)
			}
			arguments := map[string][]string{"nginx": {"-t", "-p", folder, "-c", file}, "haproxy": {"-c", "-f", file}}[test.program]
			if output, err := exec.Command(test.program, arguments...).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}
