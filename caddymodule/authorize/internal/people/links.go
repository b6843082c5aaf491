package people

import "fmt"

// CheckLinks returns an error if two local users have the same verified address and a
// provider links by it, which would be ambiguous.
func (a *Accounts) CheckLinks() error {
	owners := map[string]string{}
	for _, p := range a.Providers {
		for _, user := range a.Directory.Users {
			address := lowered(user.Email)
			if other := owners[address]; p.LinkEmail && user.EmailVerified && other != "" && other != user.ID {
				return fmt.Errorf("users %q and %q have the same verified e-mail address, and idp %q links by it", other, user.ID, p.Key)
			}
			if user.EmailVerified {
				owners[address] = user.ID
			}
		}
	}
	return nil
}

// linked returns the local user of a person, or nil. A disabled user is returned too: the
// person must not get an account of their own then.
func (a *Accounts) linked(p *Provider, id identity) *User {
	for _, user := range a.Directory.Users {
		if p.links(id, user) {
			return user
		}
	}
	return nil
}

// links reports whether a person of the provider is a local user. That is true of at most
// one ([Accounts.CheckLinks]).
func (p *Provider) links(id identity, user *User) bool {
	address := id.verifiedEmail()
	return p.LinkEmail && address != "" && user.EmailVerified && lowered(user.Email) == lowered(address)
}
