package deployment

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// nginx accepts the upstream block of docs/operate/replicas.md together with the server block of docs/guides/nginx.md. HAProxy
// accepts the configuration in docs/examples.
func TestLoadBalancers(t *testing.T) {
	page, err1 := os.ReadFile("../../../docs/operate/replicas.md")
	haproxy, err2 := os.ReadFile("../../../docs/examples/compose/replicas/haproxy.cfg")
	guide, err3 := os.ReadFile("../../../docs/guides/nginx.md")
	block := regexp.MustCompile("(?s)```nginx\n(.*?)```")
	upstream, server := block.FindSubmatch(page), block.FindSubmatch(guide)
	if err := errors.Join(err1, err2, err3); err != nil || upstream == nil || server == nil {
		t.Fatal(err, upstream, server)
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
	for _, test := range []struct{ program, config string }{
		{"nginx", "pid " + folder + "/pid;\nevents {\n}\nhttp {\naccess_log off;\n" + string(upstream[1]) + strings.NewReplacer("/etc/ssl/fhir.hospital.example", folder+"/fhir.example.org",
			"proxy_pass http://127.0.0.1:8000;", "proxy_pass http://gateways;\nproxy_connect_timeout 1s;").Replace(string(server[1])) + "}\n"},
		{"haproxy", strings.ReplaceAll(string(haproxy), "/run/secrets/caddy-fhir/haproxy.pem", folder+"/fhir.example.org.pem")},
	} {
		t.Run(test.program, func(t *testing.T) {
			if _, err := exec.LookPath(test.program); err != nil {
				t.Skip("not installed:", test.program)
			}
			file := filepath.Join(folder, test.program+".conf")
			if err := os.WriteFile(file, []byte(test.config), 0o600); err != nil {
				t.Fatal(err)
			}
			arguments := map[string][]string{"nginx": {"-t", "-p", folder, "-c", file}, "haproxy": {"-c", "-f", file}}[test.program]
			if output, err := exec.Command(test.program, arguments...).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}
