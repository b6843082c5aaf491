// Package fairqueue limits how much costly work runs at once, and shares it among networks and clients.
//
//	Queue.Enter(network, client) ── no place left ──► ErrFull
//	   │ a place: as many as are still free at most
//	   ▼
//	a slot of the network's, then of the client's, then of all
//	   │ half of all slots at most
//	   ▼
//	the work ──► leave
//
// The context decides how long to wait. The slots are golang.org/x/sync/semaphore's; no library has the shares.
package fairqueue
