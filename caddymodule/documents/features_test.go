package documents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// TestFeaturesAreRegistered checks that the standard build imports each feature folder, that docs/architecture.md lists each
// feature in caddymodule, and that the origin and license of external data are documented.
func TestFeaturesAreRegistered(t *testing.T) {
	t.Parallel()
	architecture, notice := gatewaytest.ReadFile(t, "../../docs/architecture.md"), gatewaytest.ReadFile(t, "../../NOTICE")
	count := 0
	for parent, list := range map[string]string{
		"caddymodule/features": "caddymodule/modules.go", "terminology/operation": "terminology/standard/standard.go", "terminology/codesystem": "terminology/standard/standard.go",
	} {
		imports := gatewaytest.ReadFile(t, "../../"+list)
		entries, err := os.ReadDir("../../" + parent)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if !entry.IsDir() || entry.Name() == "internal" {
				continue
			}
			name := parent + "/" + entry.Name()
			count++
			if !strings.Contains(imports, `_ "github.com/caddy-fhir/caddy-fhir/`+name+`"`) {
				t.Errorf("%s does not import %s", list, name)
			}
			if parent == "caddymodule/features" && !strings.Contains(architecture, "["+entry.Name()+"](../"+name) {
				t.Errorf("docs/architecture.md has no row about %s", name)
			}
			if parent == "terminology/codesystem" {
				checkOrigin(t, name, notice)
			}
		}
	}
	if count < 20 { // allows for deleted features
		t.Errorf("%d features", count)
	}
}

// checkOrigin checks that a folder with compressed data has a SOURCE.md and is mentioned in NOTICE.
func checkOrigin(t *testing.T, name, notice string) {
	t.Helper()
	data, err := filepath.Glob("../../" + name + "/*.zst")
	if err != nil || len(data) == 0 {
		return
	}
	if _, err := os.Stat("../../" + name + "/SOURCE.md"); err != nil {
		t.Error(err)
	}
	if !strings.Contains(notice, name+"\n") && !strings.Contains(notice, name+",") {
		t.Errorf("NOTICE does not name %s", name)
	}
}
