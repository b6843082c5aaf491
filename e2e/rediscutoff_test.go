package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/redis/redisstore"

	"github.com/caddy-fhir/caddy-fhir/e2e/replicas/deployment"
)

// TestRedisCutOff isolates the master and its Sentinel from the replicas and the other Sentinels. A gateway still reaches all
// of them, and the master's Sentinel first. The gateway must know each code that the next master contains, and must switch to
// that master long before the network is restored.
func TestRedisCutOff(t *testing.T) {
	engine, network := startCuttableSentinel(t)
	pairs := map[int][2]*redisstore.Store{}
	for wait := range 2 {
		options := redisstore.Options{
			Sentinel: redisstore.Sentinel{Master: "fhir", Nodes: engine.Addresses()}, WaitReplicas: wait,
		}
		pairs[wait] = [2]*redisstore.Store{openRedis(t, options), openRedis(t, options)}
		for _, gateway := range pairs[wait] {
			retryUntilResponse(t, func() error { return gateway.Put(t.Context(), "code:before", nil, time.Minute) })
		}
	}
	servers := engine.Servers()
	for _, s := range servers[1:] {
		if err := network.Cut(servers[0], s); err != nil {
			t.Fatal(err)
		}
	}
	awaitNextMaster(t, engine, servers[0])
	time.Sleep(3 * time.Second) // wait until min-replicas-max-lag has passed
	for wait, gateways := range pairs {
		t.Run(fmt.Sprintf("wait_replicas %d", wait), func(t *testing.T) { redeemAtOtherGateway(t, gateways) })
	}
}

// redeemAtOtherGateway creates codes at one gateway and redeems them at the other.
func redeemAtOtherGateway(t *testing.T, gateways [2]*redisstore.Store) {
	began, longest := time.Now(), time.Duration(0)
	for i := range 100 {
		key := "code:" + randomID()
		retryUntilResponse(t, func() error { return gateways[i%2].Put(t.Context(), key, nil, time.Minute) })
		start := time.Now()
		retryUntilResponse(t, func() error { _, err := gateways[1-i%2].Take(t.Context(), key); return err })
		longest = max(longest, time.Since(start))
	}
	t.Logf("100 codes took %v; the longest to take one, %v", time.Since(began), longest)
}

// startCuttableSentinel starts a master and two replicas, each with a Sentinel, in a network that supports cuts.
func startCuttableSentinel(t *testing.T) (deployment.Engine, *deployment.Network) {
	t.Helper()
	if missing := deployment.Missing("sentinel"); len(missing) > 0 {
		t.Skipf("not installed: %v", missing)
	}
	network, err := deployment.NewNetwork()
	if err != nil {
		t.Skipf("this machine permits no network namespaces: %v", err)
	}
	t.Cleanup(network.Close)
	engine, err := deployment.StartEngine("sentinel", t.TempDir(), network)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Stop)
	return engine, network
}

// awaitNextMaster waits until the engine has a master other than old.
func awaitNextMaster(t *testing.T, engine deployment.Engine, old *deployment.Process) {
	t.Helper()
	began := time.Now()
	for engine.Servers()[0] == old {
		if time.Since(began) > 20*time.Second {
			t.Fatal("no next master")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// retryUntilResponse retries a call until the store responds.
func retryUntilResponse(t *testing.T, call func() error) {
	t.Helper()
	began := time.Now()
	for {
		err := call()
		if err == nil {
			return
		}
		if !errors.Is(err, store.ErrUnavailable) || time.Since(began) > 5*time.Second {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
