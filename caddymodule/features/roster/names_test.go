package roster

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/roster/entry"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

const bcryptOfX = "$2a$04$1s/FpDlJ4PU6mb.fDx7GgeBiMXPSWBfJNzL6MbVB5FuYQHX0GPtMm"

// TestNames adds a client and a user of each name: a name that HTTP would change, or that another principal of the issuer can have,
// never becomes the sub of a token.
func TestNames(t *testing.T) {
	g := example(t, nil)
	adds := func(target, name string) bool {
		config := map[string]any{"id": name}
		if target == usersPath {
			config = map[string]any{"name": name, "password_hash": bcryptOfX}
		}
		_, status := g.ask(http.MethodPost, target, string(caddyconfig.JSON(config, nil)))
		if status == http.StatusOK {
			g.remove(target + "/" + url.PathEscape(name))
		}
		return status == http.StatusOK
	}
	for _, target := range []string{clientsPath, usersPath} {
		for _, bad := range []map[string]string{gatewaytest.BadNames, gatewaytest.ReservedNames} {
			for name, text := range bad {
				if adds(target, text) {
					t.Errorf("%s: %s is accepted", target, name)
				}
			}
		}
		for name, text := range gatewaytest.GoodNames {
			if !adds(target, text) {
				t.Errorf("%s: %s is not accepted", target, name)
			}
		}
	}
}

// TestBadNamesInStore starts with a store that has bad names: they are reported and not in force,
// all others stay in force, and the operator can remove them.
func TestBadNamesInStore(t *testing.T) {
	g := example(t, nil)
	earlier := entry.New(g.app().Stores().Durable, new(entry.Known)) // checks nothing
	put := func(kind entry.Kind, name string, config map[string]any) {
		t.Helper()
		err := earlier.Change(t.Context(), kind, name, entry.Add(entry.Entry{Config: caddyconfig.JSON(config, nil), Since: time.Now()}), nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	bad := slices.Concat(slices.Collect(maps.Values(gatewaytest.BadNames)), slices.Collect(maps.Values(gatewaytest.ReservedNames)))
	for _, name := range bad {
		put(entry.Users, name, map[string]any{"name": name, "password_hash": bcryptOfX})
		put(entry.Clients, name, map[string]any{"id": name})
	}
	put(entry.Users, "wendy", map[string]any{"name": "wendy", "password_hash": bcryptOfX})
	for kind, want := range map[entry.Kind]int{entry.Users: len(bad), entry.Clients: len(bad)} {
		entries, err := g.roster().List(t.Context(), string(kind))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if isBad := slices.Contains(bad, e.Name); (e.Problem != "") != isBad {
				t.Errorf("%s %q: the problem is %q", kind, e.Name, e.Problem)
			} else if isBad {
				want--
			}
		}
		if want != 0 {
			t.Errorf("%s: %d bad names are not listed", kind, want)
		}
		for _, name := range bad {
			g.remove("/fhir/" + string(kind) + "/" + url.PathEscape(name))
		}
	}
}
