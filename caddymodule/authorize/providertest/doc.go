// Package providertest implements an OpenID provider with configurable faults, for tests of relying parties.
//
// [Start] starts a provider on a TCP port. By default, its behavior is correct: the authorization endpoint responds immediately
// with a code for [Alice], or for the person specified by login_hint. Codes are single-use and require the client secret and
// the PKCE verifier. Each endpoint records its requests and can be given a [Fault]:
//
//	p := providertest.Start(t)
//	p.SetFault(providertest.Token, providertest.NeverRespond)   // connections, responses: fault.go
//	p.DropPackets(t, providertest.Token)                        // SYNs: blackhole_linux.go
//	p.Change(func(s *providertest.Settings) {
//		s.IDToken = providertest.WrongNonce                     // ID tokens: fault.go
//		s.Metadata["userinfo_endpoint"] = nil                   // discovery
//	})
//
// The endpoints are in provider.go and flow.go.
//
// [Authenticator] is a software passkey: authenticator.go.
//
// All providers in a process share an RSA key, because generating one is slow. They have different issuers.
package providertest
