package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The clients written in JavaScript, by Node's own test runner.
func TestNodeClients(t *testing.T) {
	for _, file := range []string{"openid-client.test.mjs", "oauth4webapi.test.mjs", "simple-oauth2.test.mjs"} {
		t.Run(file, func(t *testing.T) {
			node := exec.CommandContext(t.Context(), "node", "--test", "--test-reporter=tap", file)
			node.Dir = "node"
			node.Env = append(os.Environ(), "ISSUER="+example.issuer, "NODE_EXTRA_CA_CERTS="+example.rootFile)
			output, err := node.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
			for line := range strings.Lines(string(output)) {
				if strings.HasPrefix(line, "ok ") {
					t.Log(strings.TrimSpace(line))
				}
			}
		})
	}
}
