package fhirapp

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

func TestBrandingResolved(t *testing.T) {
	t.Parallel()
	const svg = `<svg xmlns="http://www.w3.org/2000/svg"/>`
	tests := []struct{ name, image, err string }{
		{"SVG", svg, ""},
		{"text", "a logo", "not a PNG, SVG or WebP image"},
		{"too large", svg + strings.Repeat(" ", 300<<10), "larger than 256 KiB"},
	}
	for _, tt := range tests {
		file := filepath.Join(t.TempDir(), "logo")
		gatewaytest.Put(t, file, tt.image)
		resolved, err := (&Branding{Name: "Clinic", Logo: file, Color: "0b5c8a"}).resolved()
		switch {
		case tt.err == "" && (err != nil || resolved.Logo == nil || resolved.Name != "Clinic" || resolved.Color != "0b5c8a"):
			t.Errorf("%s: %+v, %v", tt.name, resolved, err)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), file)):
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if _, err := (&Branding{Logo: filepath.Join(t.TempDir(), "none")}).resolved(); err == nil {
		t.Error("no error for a missing file")
	}
	if resolved, err := new(Branding).resolved(); err != nil || resolved.Logo != nil {
		t.Errorf("%+v, %v", resolved, err)
	}
}
