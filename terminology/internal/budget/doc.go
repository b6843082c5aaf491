// Package budget bounds what one request may cost. All that works for the request spends from its [Budget], which also
// makes costly requests wait for their turn, and ends work when the client has gone.
package budget
