package option

import (
	"maps"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// A Feature is a Caddy module that adds subdirectives to a block of the core. The core finds it by its namespace, so that
// it need not import it.
type Feature interface {
	caddy.Module

	// Subdirectives returns the subdirectives that set up this feature, and the names of those that may occur more than
	// once.
	Subdirectives() (fields Block, repeatable []string)
}

// Features are the features of a namespace, while one block is parsed.
type Features struct {
	repeatable []string
	used       map[string]Feature
}

// Features adds the subdirectives of all features of a namespace to the block. A feature is configured if one of its
// subdirectives occurs.
func (s Block) Features(namespace string) *Features {
	f := &Features{used: map[string]Feature{}}
	for _, info := range caddy.GetModules(namespace) {
		feature, ok := info.New().(Feature)
		if !ok {
			continue
		}
		fields, repeatable := feature.Subdirectives()
		f.repeatable = append(f.repeatable, repeatable...)
		for name, set := range fields {
			s[name] = func(d *caddyfile.Dispenser) error {
				f.used[info.ID.Name()] = feature
				return set(d)
			}
		}
	}
	return f
}

// Repeatable returns the subdirectives of features that may occur more than once, and some more.
func (f *Features) Repeatable(more ...string) []string { return slices.Concat(f.repeatable, more) }

// Used returns the configured features, sorted by name.
func (f *Features) Used() []Feature {
	var used []Feature
	for _, name := range slices.Sorted(maps.Keys(f.used)) {
		used = append(used, f.used[name])
	}
	return used
}

// Raw returns the JSON of the configured features by module name, or nil.
func (f *Features) Raw() caddy.ModuleMap {
	var raw caddy.ModuleMap
	for name, feature := range f.used {
		if raw == nil {
			raw = caddy.ModuleMap{}
		}
		raw[name] = caddyconfig.JSON(feature, nil)
	}
	return raw
}
