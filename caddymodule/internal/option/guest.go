package option

import (
	"encoding/json"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// Guest reads the name of a module in a namespace, and leaves the rest of the block to the module.
func Guest(to *json.RawMessage, namespace, inlineKey string, check func(name string) error) Setter {
	return func(d *caddyfile.Dispenser) error {
		if !d.NextArg() {
			return d.ArgErr()
		}
		name := d.Val()
		if err := checkEach(d, check, []string{name}); err != nil {
			return err
		}
		module, err := caddyfile.UnmarshalModule(d, namespace+"."+name)
		if err != nil {
			return err
		}
		*to = caddyconfig.JSONModuleObject(module, inlineKey, name, nil)
		return nil
	}
}
