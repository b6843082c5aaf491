// Package history checks the responses of several gateways against the responses of a single gateway with one
// store, for linearizability (github.com/anishathalye/porcupine).
//
// A [Record] contains operations: a client's request, its time, and the response. The operations of a grant are a
// separate history, and so are those of a session. A history is valid if its operations can be put in an order, each
// at a moment between its call and its return, that satisfies the [Rules]. An operation without a response, or with
// a 5xx, may take effect at any time after its call, or never.
//
// The states of a grant, starting with its code:
//
//	code ──exchange──▶ first refresh token ──refresh──▶ second ──refresh──▶ …
//	  │                  │ reuse within the grace: the same successor
//	  │ reuse            │ later reuse
//	  └──────▶ revoked ◀─┴── revoke
//
// Until the grant has ended, its access tokens and its latest refresh token are accepted. Afterwards they are refused,
// except that for a short lag, a gateway may still accept them.
package history
