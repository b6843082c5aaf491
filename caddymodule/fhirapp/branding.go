package fhirapp

import (
	"fmt"
	"io"
	"os"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// Branding makes the pages that people see look like the site's own.
type Branding struct {
	// The site's name, at most 80 characters: at the head of every page, and in its title. Default: the issuer's host.
	Name string `json:"name,omitempty"`

	// The file of an image above the name: PNG, SVG or WebP, at most 256 KiB. It is read when the configuration loads,
	// and served at `/oauth2/logo`. Scripts in it do not run. Default: none.
	Logo string `json:"logo,omitempty"`

	// The color of buttons and links, such as `#0b5c8a`. Where its contrast is less than WCAG 2.2 asks for, on the light
	// background or the dark one, pages use a darker or lighter shade of it. Default: a blue.
	Color string `json:"color,omitempty"`
}

// resolved is the branding for package authorize, with the logo read.
func (b *Branding) resolved() (page.Branding, error) {
	resolved := page.Branding{Name: b.Name, Color: b.Color}
	if b.Logo == "" {
		return resolved, nil
	}
	image, err := readAtMost(b.Logo, page.MaxLogo)
	if err == nil {
		resolved.Logo, err = page.NewLogo(image)
	}
	if err != nil {
		return resolved, fmt.Errorf("branding: logo %s: %w", b.Logo, err)
	}
	return resolved, nil
}

// readAtMost reads a file, and one byte more than limit of it at most: enough to tell that it is too large.
func readAtMost(name string, limit int64) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, limit+1))
}

// parse reads a branding block.
func (b *Branding) parse(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	return option.Block{
		"name":  option.Word(&b.Name, page.CheckName),
		"logo":  option.Word(&b.Logo, nil),
		"color": b.parseColor,
	}.Parse(d)
}

// parseColor reads a color. Without quotes, # begins a comment.
func (b *Branding) parseColor(d *caddyfile.Dispenser) error {
	if d.CountRemainingArgs() == 0 {
		return d.Err(`color has no value: # begins a comment, so write "#0b5c8a" in quotes, or 0b5c8a`)
	}
	return option.Word(&b.Color, page.CheckColor)(d)
}
