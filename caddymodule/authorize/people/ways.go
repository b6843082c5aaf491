package people

import (
	"slices"
)

// Ways is how a person can sign in to a client.
type Ways struct {
	Local     bool        // by a password here
	Providers []*Provider // in the order of the client's list
}

// Ways lists the ways that a client allows, by its list, in the order of its list or else of
// the configuration.
func (a *Accounts) Ways(keys []string) Ways {
	if len(keys) == 0 {
		keys = append([]string{Local}, a.ProviderKeys...)
	}
	var o Ways
	for _, key := range keys {
		if p := a.Providers[key]; p != nil {
			o.Providers = append(o.Providers, p)
		}
	}
	o.Local = slices.Contains(keys, Local) && len(a.Directory.Users) > 0
	return o
}

// Has says whether one can sign in by the provider with this key, or locally.
func (o Ways) Has(key string) bool {
	if key == "" || key == Local {
		return o.Local
	}
	return slices.ContainsFunc(o.Providers, func(p *Provider) bool { return p.Key == key })
}

// ByDomain finds the provider whose people have e-mail addresses like this one.
func (o Ways) ByDomain(address string) *Provider {
	domain := emailDomain(address)
	for _, p := range o.Providers {
		if domain != "" && slices.Contains(p.Domains, domain) {
			return p
		}
	}
	return nil
}
