// Package fairqueue bounds how much costly work is under way at once, so that who asks for
// much of it leaves room for others.
//
//	Queue.Enter(network, client) ── no place left ──► ErrFull
//	   │ a place: as many as are still free at most
//	   ▼
//	a slot of the network's, then of the client's, then of all
//	   │ half of all slots at most
//	   ▼
//	the work ──► leave
//
// It knows nothing of what the work is, nor how long anybody should wait: that is for the
// context to say.
package fairqueue
