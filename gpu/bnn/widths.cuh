// How wide integers between layers are: 16 bits where their range fits, else 32.
//
//   -DGIVEN_INT16 | -DGIVEN_INT32    what a kernel reads
//   -DOTHER_INT16 | -DOTHER_INT32    its second array
//   -DMADE_INT16 | -DMADE_INT32      what it writes

#pragma once

#if defined(GIVEN_INT16)
typedef short Given;
#else
typedef int Given;
#endif

#if defined(OTHER_INT16)
typedef short Other;
#else
typedef int Other;
#endif

#if defined(MADE_INT16)
typedef short Made;
#else
typedef int Made;
#endif
