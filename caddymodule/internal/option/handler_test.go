package option

import (
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// testFeature has one repeatable subdirective and one that may occur only once.
type testFeature struct {
	Rows []string `json:"rows,omitempty"`
	On   bool     `json:"on,omitempty"`
}

func (*testFeature) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.test_features.rows", New: func() caddy.Module { return new(testFeature) }}
}

func (f *testFeature) Subdirectives() (Block, []string) {
	return Block{
		"row": func(d *caddyfile.Dispenser) error {
			f.Rows = append(f.Rows, d.RemainingArgs()...)
			return nil
		},
		"rows_on": Flag(&f.On),
	}, []string{"row"}
}

func init() { caddy.RegisterModule(new(testFeature)) }

func TestFeatures(t *testing.T) {
	for _, tt := range []struct{ name, block, want, err string }{
		{"not used", "fhir {\n own x\n}", "", ""},
		{"used", "fhir {\n row a\n own x\n row b\n rows_on\n}", `{"rows":["a","b"],"on":true}`, ""},
		{"twice", "fhir {\n rows_on\n rows_on\n}", "", "duplicate rows_on, at Testfile:3"},
		{"unknown", "fhir {\n rwo a\n}", "", "unrecognized subdirective: rwo: did you mean row?, at Testfile:2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var own string
			fields := Block{"own": Word(&own, nil)}
			features := fields.Features("fhir.test_features")
			d := caddyfile.NewTestDispenser(tt.block)
			err := ParseDirective(d, fields, features.Repeatable("own")...)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v, want %s", err, tt.err)
				}
				return
			}
			if raw := features.Raw(); err != nil || string(raw["rows"]) != tt.want || len(features.Configured()) != len(raw) {
				t.Errorf("%s, %v", raw, err)
			}
		})
	}
}
