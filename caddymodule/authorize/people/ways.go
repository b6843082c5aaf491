package people

import "slices"

// Ways are the ways to sign in for a client.
type Ways struct {
	Local     bool        // by a password here
	Providers []*Provider // in the order of the client's list
}

// Ways returns the ways in a client's list of keys. If the list is empty, it returns all, in
// the order of the configuration.
func (a *Accounts) Ways(keys []string) Ways {
	if len(keys) == 0 {
		keys = append([]string{Local}, a.ProviderKeys...)
	}
	var ways Ways
	for _, key := range keys {
		if p := a.Providers[key]; p != nil {
			ways.Providers = append(ways.Providers, p)
		}
	}
	ways.Local = slices.Contains(keys, Local) && a.Directory.Len() > 0
	return ways
}

// Has reports whether one can sign in by the provider with a key, or by a password here if
// the key is "" or [Local].
func (w Ways) Has(key string) bool {
	if key == "" || key == Local {
		return w.Local
	}
	return slices.ContainsFunc(w.Providers, func(p *Provider) bool { return p.Key == key })
}

// ByDomain returns the provider for the domain of an e-mail address, or nil.
func (w Ways) ByDomain(address string) *Provider {
	domain := emailDomain(address)
	for _, p := range w.Providers {
		if domain != "" && slices.Contains(p.Domains, domain) {
			return p
		}
	}
	return nil
}

// Issuers are those of the identity providers, in the order of the configuration.
func (a *Accounts) Issuers() (issuers []string) {
	for _, key := range a.ProviderKeys {
		issuers = append(issuers, a.Providers[key].Issuer)
	}
	return issuers
}
