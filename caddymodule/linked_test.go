package caddymodule

import (
	"slices"
	"strings"
	"testing"
)

// serverPackages returns the packages of the authorization server that need its state or its pages.
func serverPackages() (paths []string) {
	for _, name := range []string{
		"account", "client", "consent", "deprovisioning", "factor", "flow",
		"launch", "lockout", "page", "people", "revalidation", "revocation", "scopelimit", "sealedkeys", "session", "signin", "token",
	} {
		paths = append(paths, "caddymodule/authorize/"+name)
	}
	return paths
}

// notLinked lists the packages that each Caddy module must not import, directly or indirectly, and why: a way to use the module
// without these packages. "/..." stands for a folder and all folders below it; "/*" stands for only the folders below it.
var notLinked = []struct {
	module, reason string
	unreachable    []string
}{
	{
		"caddymodule/modules/outcome", "renders the errors of any handler, also at sites that have no other module of ours",
		[]string{
			"caddymodule", "caddymodule/authorize/...", "caddymodule/features/...", "caddymodule/fhirapp", "caddymodule/guard/...", "caddymodule/smart/...", "caddymodule/internal/relyingparty",
			"terminology", "terminology/api", "terminology/cache", "terminology/definitions", "terminology/codesystem/...", "terminology/operation/...",
			"terminology/standard",
		},
	},
	{
		"caddymodule/modules/bearer", "guards with tokens of other issuers, where no authorization server runs",
		append(
			serverPackages(), "caddymodule", "caddymodule/authorize", "caddymodule/features/...", "caddymodule/fhirapp", "caddymodule/internal/totp",
			"terminology", "terminology/api", "terminology/cache", "terminology/definitions", "terminology/codesystem/...", "terminology/operation/...",
			"terminology/standard",
		),
	},
	{
		"caddymodule/modules/expand", "serves terminology without tokens, where nothing is guarded",
		append(
			serverPackages(), "caddymodule", "caddymodule/features/...", "caddymodule/fhirapp", "caddymodule/authorize", "caddymodule/authorize/audit", "caddymodule/authorize/browser",
			"caddymodule/authorize/keyring", "caddymodule/guard", "caddymodule/guard/enforce",
			"caddymodule/guard/internal/...", "caddymodule/internal/tokenclaim", "caddymodule/internal/relyingparty", "caddymodule/modules/bearer",
			"terminology/codesystem/*", "terminology/operation/...", "terminology/standard",
		),
	},
	{
		"caddymodule/modules/authorization", "serves the authorization server, to which features such as clients and users in the store only add",
		[]string{"caddymodule", "caddymodule/features/...", "caddymodule/fhirapp"},
	},
	{
		"caddymodule/fhirapp", "is the app of every build with an authorization server, whatever features the build has",
		[]string{"caddymodule", "caddymodule/features/..."},
	},
}

// TestNotLinked checks that Caddy modules do not import packages that their users do not need.
func TestNotLinked(t *testing.T) {
	t.Parallel()
	packages := listPackages(t)
	for _, row := range notLinked {
		i := slices.IndexFunc(packages, func(p goPackage) bool { return p.ImportPath == row.module })
		if i < 0 {
			t.Errorf("no package %s", row.module)
			continue
		}
		for _, pattern := range row.unreachable {
			if !slices.ContainsFunc(packages, func(p goPackage) bool { return matchesPackage(pattern, p.ImportPath) }) {
				t.Errorf("%s: no package matches %s", row.module, pattern)
			}
			for _, dep := range packages[i].Deps {
				if matchesPackage(pattern, strings.TrimPrefix(dep, module)) {
					t.Errorf("%s links %s, but %s", row.module, dep, row.reason)
				}
			}
		}
	}
}

func matchesPackage(pattern, path string) bool {
	if folder, below := strings.CutSuffix(pattern, "/*"); below {
		return strings.HasPrefix(path, folder+"/")
	}
	folder, all := strings.CutSuffix(pattern, "/...")
	return path == folder || all && strings.HasPrefix(path, folder+"/")
}
