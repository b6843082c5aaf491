package people

import "fmt"

// checkLink returns an error if another user has the same verified address and a provider links by it, which would be
// ambiguous.
func (d *Directory) checkLink(u *User) error {
	if !d.linked || !u.EmailVerified || u.Email == "" {
		return nil
	}
	for _, id := range d.addresses.Get(lowered(u.Email)) {
		if d.User(id).EmailVerified {
			return fmt.Errorf("users %q and %q have the same verified e-mail address, and an idp links by it", id, u.ID)
		}
	}
	return nil
}

// linked returns the local user of a person, or nil. A disabled user is returned too: the
// person must not get an account of their own then.
func (a *Accounts) linked(p *Provider, id identity) *User {
	for _, user := range a.Directory.addresses.Get(lowered(id.verifiedEmail())) {
		if user := a.Directory.User(user); p.links(id, user) {
			return user
		}
	}
	return nil
}

// links reports whether a person of the provider is a local user. That is true of at most
// one ([Directory.Add]).
func (p *Provider) links(id identity, user *User) bool {
	address := id.verifiedEmail()
	return p.LinkEmail && address != "" && user.EmailVerified && lowered(user.Email) == lowered(address)
}
