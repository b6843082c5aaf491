// Package providertest is an OpenID provider that can be made to fail, for
// tests of whoever signs people in with one.
//
// [Start] gives one on a real TCP port. It is correct as long as it is told
// nothing else: its authorization endpoint answers at once with a code for
// [Alice], or for the person named by login_hint; codes work once, with the
// client's secret and the PKCE verifier. Each endpoint counts and remembers its
// requests, and each can be given a [Fault] of its own:
//
//	p := providertest.Start(t)
//	p.Fail(providertest.Token, providertest.Silent)        // connections, answers: fault.go
//	p.Drop(t, providertest.Token)                           // SYNs: blackhole_linux.go
//	p.Change(func(s *providertest.Settings) {
//		s.IDToken = providertest.WrongNonce                 // ID tokens: fault.go
//		s.Metadata["userinfo_endpoint"] = nil                // discovery
//	})
//
// Its endpoints are in provider.go and flow.go.
//
// [Authenticator] is a passkey in software: authenticator.go.
//
// All providers of a process sign with the same RSA key, because making one
// takes long; what keeps them apart is the issuer.
package providertest
