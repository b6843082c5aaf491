// The authorization server as npm openid-client sees it.
import assert from 'node:assert/strict';
import { before, test } from 'node:test';

import * as client from 'openid-client';

import { expandGender, issuer, redirectURI, signIn } from './person.mjs';

let app;

before(async () => {
	app = await client.discovery(new URL(issuer), 'demo-app', undefined, client.None());
});

test('authorization code with PKCE, ID token, userinfo, $expand', async () => {
	const pkceCodeVerifier = client.randomPKCECodeVerifier();
	const expectedState = client.randomState();
	const expectedNonce = client.randomNonce();
	const end = await signIn(
		client.buildAuthorizationUrl(app, {
			redirect_uri: redirectURI,
			scope: 'openid profile email user/*.rs',
			code_challenge: await client.calculatePKCECodeChallenge(pkceCodeVerifier),
			code_challenge_method: 'S256',
			state: expectedState,
			nonce: expectedNonce,
		}),
	);
	const tokens = await client.authorizationCodeGrant(app, end, {
		pkceCodeVerifier,
		expectedState,
		expectedNonce,
		idTokenExpected: true,
	});
	assert.equal(tokens.claims().sub, 'alice');
	assert.equal(tokens.expires_in, 3600);

	const user = await client.fetchUserInfo(app, tokens.access_token, tokens.claims().sub);
	assert.equal(user.name, 'Alice Adams');
	assert.equal(user.email_verified, true);

	const answer = await client.fetchProtectedResource(app, tokens.access_token, expandGender, 'GET');
	assert.equal((await answer.json()).expansion.contains.length, 4);
});

test('maxAge, then auth_time', async () => {
	const expectedState = client.randomState();
	const end = await signIn(
		client.buildAuthorizationUrl(app, { redirect_uri: redirectURI, scope: 'openid', state: expectedState, max_age: '3600' }),
	);
	const tokens = await client.authorizationCodeGrant(app, end, { expectedState, maxAge: 3600 });
	assert.equal(typeof tokens.claims().auth_time, 'number');
});

test('an error is an AuthorizationResponseError', async () => {
	const url = client.buildAuthorizationUrl(app, { redirect_uri: redirectURI, scope: 'openid nonsense', state: 's' });
	const answer = await fetch(url, { redirect: 'manual' });
	await assert.rejects(
		client.authorizationCodeGrant(app, new URL(answer.headers.get('location')), { expectedState: 's' }),
		(error) => error instanceof client.AuthorizationResponseError && error.error === 'invalid_scope',
	);
});

test('a wrong verifier is a ResponseBodyError', async () => {
	const end = await signIn(
		client.buildAuthorizationUrl(app, {
			redirect_uri: redirectURI,
			scope: 'openid',
			code_challenge: await client.calculatePKCECodeChallenge(client.randomPKCECodeVerifier()),
			code_challenge_method: 'S256',
			state: 's',
		}),
	);
	await assert.rejects(
		client.authorizationCodeGrant(app, end, { pkceCodeVerifier: client.randomPKCECodeVerifier(), expectedState: 's' }),
		(error) => error instanceof client.ResponseBodyError && error.error === 'invalid_grant',
	);
});

for (const [name, authentication] of [
	['basic', client.ClientSecretBasic('demo-service-secret')],
	['post', client.ClientSecretPost('demo-service-secret')],
]) {
	test(`client credentials, client_secret_${name}`, async () => {
		const service = await client.discovery(new URL(issuer), 'demo-service', undefined, authentication);
		const tokens = await client.clientCredentialsGrant(service, { scope: 'system/*.rs' });
		const answer = await client.fetchProtectedResource(service, tokens.access_token, expandGender, 'GET');
		assert.equal(answer.status, 200);
	});
}
