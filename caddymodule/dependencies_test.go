package caddymodule

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// Dependencies are at least at the versions that fix their known vulnerabilities.
func TestLibrariesAreFixed(t *testing.T) {
	t.Parallel()
	text := gatewaytest.ReadFile(t, "../go.mod")
	for path, least := range map[string][3]int{
		"github.com/caddyserver/caddy/v2": {2, 11, 4}, // CVE-2026-30851 and -52845, -27586 to -27589, -30852, -52844
		"github.com/go-jose/go-jose/v4":   {4, 1, 4},  // CVE-2026-34986
		"golang.org/x/oauth2":             {0, 27, 0},
	} {
		found := regexp.MustCompile(regexp.QuoteMeta(path) + ` v(\d+)\.(\d+)\.(\d+)`).FindStringSubmatch(text)
		if found == nil {
			t.Errorf("go.mod has no %s", path)
			continue
		}
		for i, want := range least {
			if got, _ := strconv.Atoi(found[i+1]); got != want {
				if got < want {
					t.Errorf("%s is %s, want at least %v", path, found[0], least)
				}
				break
			}
		}
	}
}
